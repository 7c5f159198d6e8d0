-- note_conversation: enter a conversation into the listing, move it, or take it out; word that comes late is ignored.
-- KEYS  1 listing root, conversations:{all}
-- ARGV  1 conversation id   2 its revision   3 its execution_status ("" it is gone)
--       4 time of its creation, µs   5 time of its last change, µs   6 groups that it is listed in, joined by commas
-- Returns  "noted" | "late"
-- Cost  O(g log c): c conversations, g groups
-- Idempotent  a repeat writes the same
local root = KEYS[1]
local id, revision, status, created, updated, groups = unpack(ARGV)
local known = redis.call('HGET', root .. ':revisions', id)
local known_revision, known_status, known_groups = string.match(known or '', '^(%S+) (%S+) (.*)$')
if known and tonumber(known_revision) > tonumber(revision) then return 'late' end

local function for_each_list(status, groups, act)
  act('')
  act(':' .. status)
  for group in string.gmatch(groups, '[^,]+') do act(':' .. group) end
end

local anew = not known or known_status ~= status or known_groups ~= groups
-- the end of a former life of the id may never have been told
  or tonumber(redis.call('ZSCORE', root .. ':created', id)) ~= tonumber(created)
if known and anew then
  for_each_list(known_status, known_groups, function(list)
    redis.call('ZREM', root .. ':created' .. list, id)
    redis.call('ZREM', root .. ':updated' .. list, id)
  end)
end
if status == '' then
  redis.call('HDEL', root .. ':revisions', id)
  return 'noted'
end
redis.call('HSET', root .. ':revisions', id, revision .. ' ' .. status .. ' ' .. groups)
for_each_list(status, groups, function(list)
  if anew then redis.call('ZADD', root .. ':created' .. list, created, id) end
  redis.call('ZADD', root .. ':updated' .. list, updated, id)
end)
return 'noted'
