-- take_chat: the conversation that gave the last answer of a chat, to the first words that follow it alone. Other words
-- that follow the same answer are another branch, and must not reach the same agent.
-- KEYS  root of the chat up to that answer
-- ARGV  words:text their digest
-- Returns  text: the conversation | missing: nobody remembers it, several conversations gave that answer, or other words
--          have taken it
-- Cost  O(1)
-- Idempotent  by words
-- Kept  not proven: where it is lost, the words begin another conversation, or follow the other branch
local conversation = redis.call('HGET', root, 'conversation')
if not conversation or conversation == '' then return false end
redis.call('HSETNX', root, 'words', words)
return redis.call('HGET', root, 'words') == words and conversation
