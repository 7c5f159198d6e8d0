-- find_decisions: return the audit entries of the decisions about some actions.
-- KEYS  root of the conversation
-- ARGV  ids:text* of the actions, at most 100
-- Returns  (entries:json?*): the entry of each id's last decision, absent if there is none
--          | missing: no such conversation
-- Cost  O(i e'): i ids, e' list nodes from the nearer end of the audit
-- Idempotent  reads only
if redis.call('EXISTS', root) == 0 then return false end
local seqs, entries = redis.call('HMGET', root .. ':decided', unpack(ids)), {}
for i, seq in ipairs(seqs) do entries[i] = seq and redis.call('LINDEX', root .. ':audit', seq - 1) end
return entries
