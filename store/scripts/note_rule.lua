-- note_rule: note in the audit of the day that an approval rule which names no conversation was made or revoked.
-- KEYS  root of the sandboxes
-- ARGV  time:text now, UTC with Z  kept:int ms for which the audit of a day stays
--       actor:json who did it, canonical  what:text rule_made or rule_revoked  id:text of the rule
--       reason:json the rule in a sentence, canonical
-- Returns  flag: whether this call noted it
-- Cost  O(1)
-- Idempotent  by id and what, for a day
-- Brings  bytes
-- include: _sha256.lua
-- include: _destinations.lua
if not redis.call('SET', root .. ':noted:' .. what .. ':' .. id, '', 'NX', 'EX', 86400) then return 0 end
audit({time = time, kept = kept}, what, actor, {rule = id, reason = reason})
return 1
