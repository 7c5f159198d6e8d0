-- delete_conversation: remove a conversation with all its keys; memory is freed in the background.
-- KEYS  1 conversation root, conv:{id}
-- ARGV  1 deletion id, one per request
-- Returns  {"deleted" | "gone": another request deleted it, less than a minute ago, its last revision}
--          | false: no such conversation
-- Cost  O(k): k keys of the conversation, one per (kind, source) pair and text chunk beside nine
-- Idempotent  by deletion id, for a minute: a repeat returns "deleted" and touches nothing
local root = KEYS[1]
local state = redis.call('HMGET', root, 'text_chunk', 'revision')
if not state[1] then
  local id, revision = string.match(redis.call('GET', root .. ':deleted') or '', '^(%S+) (%S+)$')
  return id and {id == ARGV[1] and 'deleted' or 'gone', revision}
end
for _, pair in ipairs(redis.call('SMEMBERS', root .. ':pairs')) do redis.call('UNLINK', root .. ':at:' .. pair) end
for number = 0, tonumber(state[1]) do redis.call('UNLINK', root .. ':text:' .. number) end
redis.call('UNLINK', root, root .. ':log', root .. ':ids', root .. ':pairs', root .. ':pending', root .. ':peaks',
  root .. ':secrets', root .. ':echoes', root .. ':start')
redis.call('SET', root .. ':deleted', ARGV[1] .. ' ' .. state[2], 'EX', 60)
redis.call('PUBLISH', root .. ':signal', '0')
return {'deleted', state[2]}
