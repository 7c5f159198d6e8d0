-- bury_start: bar an ended start task from creating anything below a root: a conversation, or a use of a sandbox.
-- Its driver may be between two steps.
-- KEYS  root of the conversation, or of the sandboxes
-- ARGV  id:text of the start task  late:int maximum delay of a driver, in seconds
-- Returns  missing
-- Cost  O(1)
-- Idempotent  a repeat writes the same
redis.call('SET', root .. ':ended:' .. id, '', 'EX', late)
