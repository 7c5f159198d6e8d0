-- _outstanding: the decision that a conversation's agent may not have received.
-- `root` is the conversation's.

-- Returns {id, "accept" | "reject", reason as JSON, ids of the actions as JSON, decision of each as JSON ("" alike),
-- W3C traceparent of the decided actions ("" none)}, empty if there is none.
local function outstanding()
  local delivery = redis.call('HMGET', root, 'delivery_id', 'delivery_verb', 'delivery_reason', 'delivery_actions',
    'delivery_decisions', 'delivery_trace')
  if not delivery[1] then return {} end
  delivery[5], delivery[6] = delivery[5] or '', delivery[6] or ''
  return delivery
end
