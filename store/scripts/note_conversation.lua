-- note_conversation: enter a conversation into the listing, move it, or remove it.
-- A note of an older revision is ignored, and for a minute one of a removed conversation, because a write beside its
-- deletion may be noted after that. A change to `finished` or `error` is notified, and every change is published to
-- followers of the list.
-- KEYS  root of the listing
-- ARGV  id:text  revision:micros  status:text its execution_status, "" it is deleted  created:micros  updated:micros
--       groups:text its groups, joined by commas
--       title:text folded; lists by title exist for all and for each group, not for a status
-- Returns  "noted" | "late"
-- Cost  O(g log c): c conversations, g groups
-- Idempotent  a repeat writes the same, and publishes it again
-- Full  goes on: the change that it lists is stored
-- include: _clock.lua
-- include: _outbox.lua
-- include: _changes.lua
local known = redis.call('HGET', root .. ':revisions', id)
local known_revision, known_status, known_groups = string.match(known or '', '^(%S+) (%S+) (.*)$')
if known and tonumber(known_revision) > tonumber(revision) then return 'late' end
local known_title = redis.call('HGET', root .. ':titles', id)

local function for_each_list(status, groups, act)
  act('', true)
  act(':' .. status)
  for group in string.gmatch(groups, '[^,]+') do act(':' .. group, true) end
end

if status ~= '' and not known then
  local lived, last = string.match(redis.call('GET', root .. ':gone:' .. id) or '', '^(%S+) (%S+)$')
  -- An import has its original's time of creation, and a later revision.
  if tonumber(lived) == tonumber(created) and tonumber(revision) <= tonumber(last) then return 'late' end
end
local moves = not known or known_status ~= status or known_groups ~= groups or known_title ~= title
  -- the end of an earlier incarnation may not have been noted
  or tonumber(redis.call('ZSCORE', root .. ':created', id)) ~= tonumber(created)
if status == '' and known then
  local begun = redis.call('ZSCORE', root .. ':created', id)
  if begun then redis.call('SET', root .. ':gone:' .. id, begun .. ' ' .. revision, 'EX', 60) end
end
if known and moves then
  for_each_list(known_status, known_groups, function(list)
    redis.call('ZREM', root .. ':created' .. list, id)
    redis.call('ZREM', root .. ':updated' .. list, id)
    if known_title then redis.call('ZREM', root .. ':title' .. list, known_title .. '\0' .. id) end
  end)
end
note_change(id)
if status == '' then
  redis.call('HDEL', root .. ':revisions', id)
  redis.call('HDEL', root .. ':titles', id)
  return 'noted'
end
redis.call('HSET', root .. ':revisions', id, revision .. ' ' .. status .. ' ' .. groups)
if known and known_status ~= status and (status == 'finished' or status == 'error') then
  push_outbox(root, {id = 'msg_' .. id .. '-' .. revision, type = 'conversation.' .. status, at = updated,
    conversation_id = id})
end
redis.call('HSET', root .. ':titles', id, title)
for_each_list(status, groups, function(list, by_title)
  if moves then redis.call('ZADD', root .. ':created' .. list, created, id) end
  if moves and by_title then redis.call('ZADD', root .. ':title' .. list, 0, title .. '\0' .. id) end
  redis.call('ZADD', root .. ':updated' .. list, updated, id)
end)
return 'noted'
