-- bury_conversation: keep a tombstone of a deleted conversation beside its sandbox, so that no webhook of that sandbox
-- creates the conversation again, and free its place. The tombstones end with their sandbox (`remove` of _sandbox.lua).
-- KEYS  1 root of the sandboxes
-- ARGV  1 sandbox id   2 conversation id   3 most tombstones of one sandbox: beyond it the oldest are forgotten
-- Returns  "buried" | false: no such sandbox, so nothing can post
-- Cost  O(log t): t tombstones
-- Idempotent  a repeat finds the tombstone
-- include: _clock.lua
local key = root .. ':gone:' .. ARGV[1]
if redis.call('EXISTS', root .. ':box:' .. ARGV[1]) == 0 then return false end
redis.call('ZADD', key, now, ARGV[2])
redis.call('ZREM', root .. ':places:' .. ARGV[1], ARGV[2])
redis.call('ZREMRANGEBYRANK', key, 0, -1 - tonumber(ARGV[3]))
return 'buried'
