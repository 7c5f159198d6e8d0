-- note_conversation: enter a conversation into the listing, move it, or take it out; word that comes late is ignored.
-- KEYS  1 listing root, conversations:{all}
-- ARGV  1 conversation id   2 its revision   3 its execution_status ("" it is gone)
--       4 time of its creation, µs   5 time of its last change, µs
-- Returns  "noted" | "late"
-- Cost  O(log c): c conversations
-- Idempotent  a repeat writes the same
local root = KEYS[1]
local id, revision, status, created, updated = unpack(ARGV)
local known = redis.call('HGET', root .. ':revisions', id)
local known_status
if known then
  local known_revision
  known_revision, known_status = string.match(known, '^(%S+) (.*)$')
  if tonumber(known_revision) > tonumber(revision) then return 'late' end
end
if known_status and known_status ~= status then
  redis.call('ZREM', root .. ':created:' .. known_status, id)
  redis.call('ZREM', root .. ':updated:' .. known_status, id)
end
if status == '' then
  redis.call('HDEL', root .. ':revisions', id)
  redis.call('ZREM', root .. ':created', id)
  redis.call('ZREM', root .. ':updated', id)
  return 'noted'
end
redis.call('HSET', root .. ':revisions', id, revision .. ' ' .. status)
-- the end of a former life of the id may never have been told
if known_status ~= status or tonumber(redis.call('ZSCORE', root .. ':created', id)) ~= tonumber(created) then
  redis.call('ZADD', root .. ':created', created, id)
  redis.call('ZADD', root .. ':created:' .. status, created, id)
end
redis.call('ZADD', root .. ':updated', updated, id)
redis.call('ZADD', root .. ':updated:' .. status, updated, id)
return 'noted'
