-- read_delivery: the decision that a conversation's agent may not have received.
-- KEYS  1 conversation root, conv:{id}
-- ARGV  (none)
-- Returns  {execution_status, delivery id, "accept" | "reject", reason as JSON, ids of the actions as JSON, the
--          decision of each as JSON ("" alike), W3C traceparent of what was decided ("" none)}
--          | false: there is none, or no such conversation
-- Cost  O(1)
-- Idempotent  reads only
-- include: _outstanding.lua
local delivery = outstanding()
if #delivery == 0 then return false end
return {redis.call('HGET', root, 'execution_status'), unpack(delivery)}
