-- note_rule: audit in the day's chain that an approval rule without conversations was made or revoked.
-- KEYS  root of the sandboxes
-- ARGV  time:text now, UTC with Z  kept:int ms for which a day's audit is kept  actor:json canonical
--       what:text rule_made or rule_revoked  id:text of the rule  reason:json a description of the rule, canonical
-- Returns  flag: whether this call recorded it
-- Cost  O(1)
-- Idempotent  by id and what, for a day
-- Brings  bytes
-- include: _sha256.lua
-- include: _destinations.lua
if not redis.call('SET', root .. ':noted:' .. what .. ':' .. id, '', 'NX', 'EX', 86400) then return 0 end
audit({time = time, kept = kept}, what, actor, {rule = id, reason = reason})
return 1
