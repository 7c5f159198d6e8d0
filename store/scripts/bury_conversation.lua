-- bury_conversation: keep a tombstone of a deleted conversation beside its sandbox, so that no webhook of that sandbox
-- creates the conversation again, and free its place. The tombstones end with their sandbox (`remove` of _sandbox.lua).
-- KEYS  root of the sandboxes
-- ARGV  sandbox:text  conversation:text  most:int tombstones of one sandbox: beyond it the oldest are forgotten
-- Returns  "buried" | missing: no such sandbox, so nothing can post
-- Cost  O(log t): t tombstones
-- Idempotent  a repeat finds the tombstone
-- include: _clock.lua
local key = root .. ':gone:' .. sandbox
if redis.call('EXISTS', root .. ':box:' .. sandbox) == 0 then return false end
redis.call('ZADD', key, now, conversation)
redis.call('ZREM', root .. ':places:' .. sandbox, conversation)
redis.call('ZREMRANGEBYRANK', key, 0, -1 - most)
return 'buried'
