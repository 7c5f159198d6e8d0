-- drop_queue: delete the queued messages of a deleted conversation.
-- KEYS  root of the start tasks
-- ARGV  conversation:text
-- Returns  missing
-- Cost  O(log q): q queues
-- Idempotent  a repeat finds no queue
-- include: _queue.lua
drop(conversation)
return false
