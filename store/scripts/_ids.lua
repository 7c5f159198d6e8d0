-- _ids: the seqs of a conversation's events by id.
-- `root` is the conversation's. UUIDs are packed in conv:{ID}:seqs, a hash of buckets. An entry is the id's 16 bytes
-- and the seq's 4, in no order. There is a bucket per 32 events. As the log grows, one bucket after the other is
-- divided (linear hashing), so that an append changes the buckets of its own ids and one more per 32 events. Other ids,
-- and those of a full bucket, are in the hash conv:{ID}:ids.
local PER_BUCKET, ENTRY, MOST_BYTES = 32, 20, 128 * 20
local DASHES = '^........%-....%-....%-....%-............$' -- pattern of a UUID
local buckets, packs = {}, {} -- buckets by number, and packed ids, that were read
local BYTE = setmetatable({}, {__index = function(known, digits)
  known[digits] = string.lower(digits) == digits and string.char(tonumber(digits, 16))
  return known[digits]
end})

-- Returns the 16 bytes of an id; nil unless it is a UUID in lower case.
local function packed(id)
  if not packs[id] and string.find(id, DASHES) then
    local bytes, number = string.gsub(id, '%-?(%x%x)', BYTE)
    if number == 16 and #bytes == 16 then packs[id] = bytes end
  end
  return packs[id]
end

-- Returns the bucket of an entry, from its first and last four bytes: these differ in random, time-based and minted
-- ids.
local function bucket_of(entry, number)
  local a, b, c, d = string.byte(entry, 1, 4)
  local e, f, g, h = string.byte(entry, 13, 16)
  local sum, size = (a + e) * 16777216 + (b + f) * 65536 + (c + g) * 256 + d + h, 1
  while size < number do size = size * 2 end
  local bucket = sum % size
  return bucket < number and bucket or bucket - size / 2
end

-- Returns the number of buckets of a log with this last seq.
local function buckets_at(seq) return math.floor(seq / PER_BUCKET) + 1 end

local function read_buckets(wanted)
  local missing = {}
  for number in pairs(wanted) do
    if not buckets[number] then missing[#missing + 1] = string.format('%d', number) end
  end
  local found = #missing > 0 and redis.call('HMGET', root .. ':seqs', unpack(missing)) or {}
  for i, number in ipairs(missing) do buckets[tonumber(number)] = found[i] or '' end
end

local function seq_in(bucket, entry)
  local at = string.find(bucket, entry, 1, true)
  while at and at % ENTRY ~= 1 do at = string.find(bucket, entry, at + 1, true) end
  if not at then return nil end
  local a, b, c, d = string.byte(bucket, at + 16, at + 19)
  return a * 16777216 + b * 65536 + c * 256 + d
end

-- Returns the seqs of the ids that the log has. last: its last seq.
local function seqs_of(ids, last)
  local number, entries, places, wanted, seqs, others = buckets_at(last), {}, {}, {}, {}, {}
  for _, id in ipairs(ids) do
    local entry = packed(id)
    if entry then
      entries[id], places[id] = entry, bucket_of(entry, number)
      wanted[places[id]] = true
    end
  end
  read_buckets(wanted)
  for _, id in ipairs(ids) do
    seqs[id] = entries[id] and seq_in(buckets[places[id]], entries[id])
    if not seqs[id] then others[#others + 1] = id end
  end
  for i, seq in ipairs(#others > 0 and redis.call('HMGET', root .. ':ids', unpack(others)) or {}) do
    seqs[others[i]] = tonumber(seq or nil)
  end
  return seqs
end

local function seq_of(id, last) return seqs_of({id}, last)[id] end
