-- join_sandbox: let a key join a sandbox that it started, or any sandbox if it may, and audit it once.
-- KEYS  root of the sandboxes
-- ARGV  sandbox:text  key:text id of the key  may_join_any:flag whether the key may join other keys' sandboxes
--       id:text of the join  conversation:text  actor:json the key, canonical  reason:json canonical
--       time:text now, UTC with Z  kept:int ms for which a day's audit is kept
-- Returns  "joined" | "foreign": another key started the sandbox | missing: no such sandbox
-- Cost  O(1)
-- Idempotent  by id of the join, for a day
-- Brings  bytes
-- include: _sha256.lua
-- include: _destinations.lua
local box = root .. ':box:' .. sandbox
if redis.call('EXISTS', box) == 0 then return false end
if (redis.call('HGET', box, 'owner') or '') ~= key and not may_join_any then return 'foreign' end
if redis.call('SET', root .. ':joined:' .. id, '', 'NX', 'EX', 86400) then
  audit({time = time, kept = kept}, 'joined', actor, {sandbox = sandbox, conversation = conversation, reason = reason})
end
return 'joined'
