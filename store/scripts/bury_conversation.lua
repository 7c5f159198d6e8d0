-- bury_conversation: write a tombstone of a deleted conversation in its sandbox, so that none of the sandbox's webhooks
-- creates the conversation again, and free its place. Tombstones end with their sandbox (`remove` in _sandbox.lua).
-- KEYS  root of the sandboxes
-- ARGV  sandbox:text  conversation:text  most:int tombstones of a sandbox: beyond it the oldest are dropped
-- Returns  "buried" | missing: no such sandbox, so no webhooks
-- Cost  O(log t): t tombstones
-- Idempotent  a repeat finds the tombstone
-- include: _clock.lua
local key = root .. ':gone:' .. sandbox
if redis.call('EXISTS', root .. ':box:' .. sandbox) == 0 then return false end
redis.call('ZADD', key, now, conversation)
redis.call('ZREM', root .. ':places:' .. sandbox, conversation)
redis.call('ZREMRANGEBYRANK', key, 0, -1 - most)
return 'buried'
