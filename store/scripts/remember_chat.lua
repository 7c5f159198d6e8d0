-- remember_chat: record which conversation gave the last answer of a chat, so that the chat continues with it.
-- KEYS  root of the chat up to that answer
-- ARGV  conversation:text  span:int ms for which it is remembered
-- Returns  missing
-- Cost  O(1)
-- Idempotent  by chat and conversation. A chat with the same answer from two conversations belongs to neither: its next
--             messages may be another person's
-- Kept  not proven: a lost chat begins another conversation, whose agent gets all messages
-- Brings  bytes
local known = redis.call('HGET', root, 'conversation')
redis.call('DEL', root)
redis.call('HSET', root, 'conversation', (not known or known == conversation) and conversation or '')
redis.call('PEXPIRE', root, span)
return false
