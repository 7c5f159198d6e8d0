-- settle_delivery: forget a decision that the agent has received, or never will. Another decision stays.
-- KEYS  1 conversation root, conv:{id}
-- ARGV  1 delivery id
-- Returns  1 | 0: another decision is outstanding, or none
-- Cost  O(1)
-- Idempotent  by delivery id
-- Full  goes on: the agent has received the command
if redis.call('HGET', root, 'delivery_id') ~= ARGV[1] then return 0 end
redis.call('HDEL', root, 'delivery_id', 'delivery_verb', 'delivery_reason', 'delivery_actions',
  'delivery_decisions', 'delivery_at', 'delivery_trace')
return 1
