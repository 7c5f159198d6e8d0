-- bury_start: let a start task that has ended make nothing more below a root: no conversation, or no use of a sandbox. Its
-- driver may be between two steps.
-- KEYS  1 conversation root, conv:{id}, or root of the sandboxes
-- ARGV  1 id of the start task   2 seconds for which a driver may be late
-- Returns  1
-- Cost  O(1)
-- Idempotent  a repeat writes the same
redis.call('SET', root .. ':ended:' .. ARGV[1], '', 'EX', ARGV[2])
return 1
