-- read_delivery: return the decision that a conversation's agent may not have received.
-- KEYS  root of the conversation
-- ARGV  none
-- Returns  (id:text verb:text reason:json actions:json decisions:text trace:text): the verb is "accept" or "reject";
--          ids of the actions; decision of each as JSON, "" alike; W3C traceparent of the decided actions, "" none
--          | missing: there is none, or no such conversation
-- Cost  O(1)
-- Idempotent  reads only
-- include: _outstanding.lua
local delivery = outstanding()
if #delivery == 0 then return false end
return delivery
