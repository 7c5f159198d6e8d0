-- join_sandbox: let a key join a sandbox that it started, or any sandbox if it may, and audit that once.
-- KEYS  1 root of the sandboxes
-- ARGV  1 sandbox id   2 id of the key   3 "1": the key may join the sandboxes of other keys   4 id of the join
--       5 conversation id   6 the key as an actor, canonical JSON   7 reason, canonical JSON   8 now, UTC text with Z
--       9 ms for which the audit of a day stays
-- Returns  {"joined"} | {"foreign"}: another key started the sandbox | false: no such sandbox
-- Cost  O(1)
-- Idempotent  by id of the join, for a day
-- Brings  bytes
-- include: _sha256.lua
-- include: _destinations.lua
local sandbox, key, may_join_any, id, conversation, actor, reason, time, kept = unpack(ARGV)
local box = root .. ':box:' .. sandbox
if redis.call('EXISTS', box) == 0 then return false end
if (redis.call('HGET', box, 'owner') or '') ~= key and may_join_any ~= '1' then return {'foreign'} end
if redis.call('SET', root .. ':joined:' .. id, '', 'NX', 'EX', 86400) then
  audit({time = time, kept = kept}, 'joined', actor, {sandbox = sandbox, conversation = conversation, reason = reason})
end
return {'joined'}
