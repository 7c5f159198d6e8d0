-- settle_delivery: delete a decision that the agent has received or never will.
-- Another decision stays.
-- KEYS  root of the conversation
-- ARGV  id:text of the delivery
-- Returns  flag: false if another decision is outstanding, or none
-- Cost  O(1)
-- Idempotent  by delivery id
-- Full  goes on: the agent has received the command
if redis.call('HGET', root, 'delivery_id') ~= id then return 0 end
redis.call('HDEL', root, 'delivery_id', 'delivery_verb', 'delivery_reason', 'delivery_actions',
  'delivery_decisions', 'delivery_at', 'delivery_trace')
return 1
