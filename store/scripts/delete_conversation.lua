-- delete_conversation: remove a conversation and everything of it; memory is freed in the background.
-- KEYS  1 conversation root, conv:{id}
-- ARGV  1 deletion id, one per request
-- Returns  "deleted" | false: no such conversation
-- Cost  O(k): k keys of the conversation, one per (kind, source) pair and text chunk beside six
-- Idempotent  by deletion id, for a minute: a repeat returns "deleted" and touches nothing
local root = KEYS[1]
local chunk = redis.call('HGET', root, 'text_chunk')
if not chunk then
  return redis.call('GET', root .. ':deleted') == ARGV[1] and 'deleted'
end
for _, pair in ipairs(redis.call('SMEMBERS', root .. ':pairs')) do redis.call('UNLINK', root .. ':at:' .. pair) end
for number = 0, tonumber(chunk) do redis.call('UNLINK', root .. ':text:' .. number) end
redis.call('UNLINK', root, root .. ':log', root .. ':ids', root .. ':pairs', root .. ':pending', root .. ':calls')
redis.call('SET', root .. ':deleted', ARGV[1], 'EX', 60)
return 'deleted'
