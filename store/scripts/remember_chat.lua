-- remember_chat: note which conversation gave the last answer of a chat, so that the chat goes on with it.
-- KEYS  root of the chat up to that answer
-- ARGV  conversation:text  span:int for which it is remembered, ms
-- Returns  missing
-- Cost  O(1)
-- Idempotent  by chat and conversation. A chat that two conversations have answered alike belongs to neither: its next
--             words may be those of another person
-- Kept  not proven: a chat that is forgotten begins another conversation, and is told to its agent
-- Brings  bytes
local known = redis.call('HGET', root, 'conversation')
redis.call('DEL', root)
redis.call('HSET', root, 'conversation', (not known or known == conversation) and conversation or '')
redis.call('PEXPIRE', root, span)
return false
