-- find_decisions: the entries of the audit that decided some actions.
-- KEYS  root of the conversation
-- ARGV  ids:text* of the actions, 100 at most
-- Returns  (entries:json?*): for each id the entry of its last decision; absent where it has none
--          | missing: no such conversation
-- Cost  O(i e'): i ids, e' list nodes between the entry and the nearer end of the audit
-- Idempotent  reads only
if redis.call('EXISTS', root) == 0 then return false end
local seqs, entries = redis.call('HMGET', root .. ':decided', unpack(ids)), {}
for i, seq in ipairs(seqs) do entries[i] = seq and redis.call('LINDEX', root .. ':audit', seq - 1) end
return entries
