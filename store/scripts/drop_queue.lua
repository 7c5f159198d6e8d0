-- drop_queue: remove the messages that wait for a conversation, which is gone.
-- KEYS  root of the start tasks
-- ARGV  conversation:text
-- Returns  missing
-- Cost  O(log q): q queues
-- Idempotent  a repeat finds nothing
-- include: _queue.lua
drop(conversation)
return false
