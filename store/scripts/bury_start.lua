-- bury_start: let a start task that has ended make nothing more below a root: no conversation, or no use of a sandbox. Its
-- driver may be between two steps.
-- KEYS  root of the conversation, or of the sandboxes
-- ARGV  id:text of the start task  late:int seconds for which a driver may be late
-- Returns  missing
-- Cost  O(1)
-- Idempotent  a repeat writes the same
redis.call('SET', root .. ':ended:' .. id, '', 'EX', late)
