-- report_conversation: store the report of a sandbox's agent server about a conversation, member by member, so that a
-- client's concurrent change of another member stays. A title is set if there is none. Tags are merged, unless the
-- agent still lacks a client's tags, or there would be too many.
-- KEYS  root of the conversation
-- ARGV  stamp:stamp  sandbox:text of the report, which must be the conversation's  title:json "" none
--       folded_title:text  tags:json an object of texts, "" none  fields:map* of the hash
-- Returns  "reported"(state:log_state) | "foreign"(state:log_state): from another sandbox
--          | missing: no such conversation
-- Cost  O(t): t tags
-- Idempotent  a repeat finds the fields set
-- Log  needed
-- Brings  bytes
-- include: _title.lua
if not open_log(stamp.id_prefix) then return false end
if redis.call('HGET', root, 'sandbox_id') ~= sandbox then return close_log('foreign', stamp.utc) end

local function set(name, value)
  if redis.call('HGET', root, name) == value then return end
  redis.call('HSET', root, name, value)
  log.changed = true
end

-- If a stored object cannot be decoded, it has a lone surrogate. The reported object replaces it.
local function merge(name, reported)
  local is_read, members = pcall(cjson.decode, redis.call('HGET', root, name) or '{}')
  local merged, differs = is_read and members or {}, not is_read
  for member, value in pairs(cjson.decode(reported)) do
    differs = differs or merged[member] ~= value
    merged[member] = value
  end
  local encoded = cjson.encode(merged)
  if differs and 3 * #encoded <= 262144 then set(name, encoded) end -- MOST_REPORTED_BYTES, with escapes
end

if title ~= '' and redis.call('HGET', root, 'title') == 'null' then
  set('title', title)
  set('folded_title', folded_title)
  publish_title(title, stamp.iso)
end
if tags ~= '' and redis.call('HEXISTS', root, 'labels_due') == 0 then merge('tags', tags) end
for i = 1, #fields, 2 do set(fields[i], fields[i + 1]) end
return close_log('reported', stamp.utc)
