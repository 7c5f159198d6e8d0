-- report_conversation: keep the report of a sandbox's agent server about a conversation, member by member: a member that
-- a client changes meanwhile stays. A title is set where there is none; tags are merged, unless the agent still lacks a
-- client's tags, or would then be more than are kept.
-- KEYS  1 conversation root, conv:{id}
-- ARGV  1 id prefix of minted events   2 now, naive UTC text   3 now, µs   4 now, UTC text with Z
--       5 id of the sandbox that reports, which must be the conversation's
--       6 title as JSON ("" none)   7 tags as a JSON object of texts ("" none)   then fields of the hash: name, value, …
-- Returns  {"reported" | "foreign": another sandbox reports, revision, execution_status, created_at, updated_at, groups, title, whether approvals matter}
--          | false: no such conversation
-- Cost  O(t): t tags
-- Idempotent  a repeat finds the fields set
-- Log  needed
-- Brings  bytes
-- include: _title.lua
if not open_log(ARGV[1]) then return false end
if redis.call('HGET', root, 'sandbox_id') ~= ARGV[5] then return close_log('foreign', ARGV[4]) end

local function set(name, value)
  if redis.call('HGET', root, name) == value then return end
  redis.call('HSET', root, name, value)
  log.changed = true
end

-- A stored object that cannot be decoded has a text with a lone surrogate: the reported one takes its place.
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

if ARGV[6] ~= '' and redis.call('HGET', root, 'title') == 'null' then
  set('title', ARGV[6])
  tell_title(ARGV[6], ARGV[2])
end
if ARGV[7] ~= '' and redis.call('HEXISTS', root, 'labels_due') == 0 then merge('tags', ARGV[7]) end
for i = 8, #ARGV, 2 do set(ARGV[i], ARGV[i + 1]) end
return close_log('reported', ARGV[4])
