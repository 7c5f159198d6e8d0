-- remember_chat: note which conversation gave the last answer of a chat, so that the chat goes on with it.
-- KEYS  1 root of the chat up to that answer
-- ARGV  1 conversation id   2 how long it is remembered, ms
-- Returns  1
-- Cost  O(1)
-- Idempotent  by chat: the newest conversation that gave this answer counts
-- Kept  not proven: a chat that is forgotten begins another conversation, and is told to its agent
-- Brings  bytes
local root = KEYS[1]
redis.call('DEL', root)
redis.call('HSET', root, 'conversation', ARGV[1])
redis.call('PEXPIRE', root, ARGV[2])
return 1
