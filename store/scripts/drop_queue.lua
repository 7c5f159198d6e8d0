-- drop_queue: remove the messages that wait for a conversation, which is gone.
-- KEYS  1 root of the start tasks
-- ARGV  1 conversation id
-- Returns  1
-- Cost  O(log q): q queues
-- Idempotent  a repeat finds nothing
-- include: _queue.lua
drop(ARGV[1])
return 1
