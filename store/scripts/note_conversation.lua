-- note_conversation: enter a conversation into the listing, move it, or take it out; a note of an older revision is ignored.
-- KEYS  1 listing root, conversations:{all}
-- ARGV  1 conversation id   2 its revision   3 its execution_status ("" it is gone)
--       4 time of its creation, µs   5 time of its last change, µs   6 groups that it is listed in, joined by commas
--       7 its title, folded; only members of a group are listed by title
-- Returns  "noted" | "late"
-- Cost  O(g log c): c conversations, g groups
-- Idempotent  a repeat writes the same
local root = KEYS[1]
local id, revision, status, created, updated, groups, title = unpack(ARGV)
local known = redis.call('HGET', root .. ':revisions', id)
local known_revision, known_status, known_groups = string.match(known or '', '^(%S+) (%S+) (.*)$')
if known and tonumber(known_revision) > tonumber(revision) then return 'late' end
local known_title = redis.call('HGET', root .. ':titles', id)
title = groups ~= '' and title

local function for_each_list(status, groups, act)
  act('')
  act(':' .. status)
  for group in string.gmatch(groups, '[^,]+') do act(':' .. group, true) end
end

local moves = not known or known_status ~= status or known_groups ~= groups or known_title ~= title
  -- the end of a former life of the id may never have been noted
  or tonumber(redis.call('ZSCORE', root .. ':created', id)) ~= tonumber(created)
if known and moves then
  for_each_list(known_status, known_groups, function(list)
    redis.call('ZREM', root .. ':created' .. list, id)
    redis.call('ZREM', root .. ':updated' .. list, id)
    if known_title then redis.call('ZREM', root .. ':title' .. list, known_title .. '\0' .. id) end
  end)
end
if status == '' then
  redis.call('HDEL', root .. ':revisions', id)
  redis.call('HDEL', root .. ':titles', id)
  return 'noted'
end
redis.call('HSET', root .. ':revisions', id, revision .. ' ' .. status .. ' ' .. groups)
if title then redis.call('HSET', root .. ':titles', id, title) else redis.call('HDEL', root .. ':titles', id) end
for_each_list(status, groups, function(list, is_group)
  if moves then redis.call('ZADD', root .. ':created' .. list, created, id) end
  if moves and is_group then redis.call('ZADD', root .. ':title' .. list, 0, title .. '\0' .. id) end
  redis.call('ZADD', root .. ':updated' .. list, updated, id)
end)
return 'noted'
