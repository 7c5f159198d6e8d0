-- _enter_ids: entering ids into the buckets of `_ids.lua`.
-- include: _ids.lua

-- The bucket from whose entries a new one gets its own.
local function divided_for(number)
  local size = 1
  while size * 2 <= number do size = size * 2 end
  return number - size
end

local function divide(before, after)
  for number = before, after - 1 do
    local stay, go, whole = {}, {}, buckets[divided_for(number)]
    for at = 1, #whole, ENTRY do
      local entry = string.sub(whole, at, at + ENTRY - 1)
      local part = bucket_of(entry, number + 1) == number and go or stay
      part[#part + 1] = entry
    end
    buckets[divided_for(number)], buckets[number] = table.concat(stay), table.concat(go)
  end
end

local function entry_of(id, seq)
  return packs[id] .. string.char(math.floor(seq / 16777216), math.floor(seq / 65536) % 256, math.floor(seq / 256) % 256, seq % 256)
end

-- Enters ids that the log does not have: {id, seq, id, seq, …}, about 1,300 at most. The log grows from one last seq to
-- another.
local function enter_ids(words, first, last)
  local before, after, wanted, changed, places = buckets_at(first), buckets_at(last), {}, {}, {}
  for number = before, after - 1 do
    local divided = divided_for(number)
    wanted[divided], changed[number], changed[divided] = divided < before or nil, true, true
  end
  for i = 1, #words, 2 do
    local entry = packed(words[i])
    places[i] = entry and bucket_of(entry, after)
    if entry and places[i] < before then wanted[places[i]] = true end
  end
  read_buckets(wanted)
  divide(before, after)
  local loose, fields = {}, {}
  for i = 1, #words, 2 do
    local place = places[i]
    if place and #buckets[place] < MOST_BYTES then
      buckets[place], changed[place] = buckets[place] .. entry_of(words[i], tonumber(words[i + 1])), true
    else
      loose[#loose + 1], loose[#loose + 2] = words[i], words[i + 1]
    end
  end
  for number in pairs(changed) do
    fields[#fields + 1], fields[#fields + 2] = string.format('%d', number), buckets[number]
  end
  if #fields > 0 then redis.call('HSET', root .. ':seqs', unpack(fields)) end
  if #loose > 0 then redis.call('HSET', root .. ':ids', unpack(loose)) end
end
