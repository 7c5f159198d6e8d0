-- take_chat: return the conversation that gave the last answer of a chat, only for the first messages that follow it.
-- Other messages after the same answer are another branch, and must not reach the same agent.
-- KEYS  root of the chat up to that answer
-- ARGV  words:text their digest
-- Returns  text: the conversation
--          | missing: it is unknown, several conversations gave that answer, or other messages have followed
-- Cost  O(1)
-- Idempotent  by words
-- Kept  not proven: after a loss, the messages begin another conversation, or follow the other branch
local conversation = redis.call('HGET', root, 'conversation')
if not conversation or conversation == '' then return false end
redis.call('HSETNX', root, 'words', words)
return redis.call('HGET', root, 'words') == words and conversation
