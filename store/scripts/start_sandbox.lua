-- start_sandbox: create the record of a sandbox, once per id; a supervisor claims it and starts it.
-- KEYS  1 root of the sandboxes
-- ARGV  1 id   2 spec id   3 session key   4 its hash   5 most that may run   6 "refuse" | "pause"
--       7 a heartbeat that is older, µs, is lost   8 where its first files come from (JSON; "" from nowhere)
--       9 the host that must take it ("" any)
-- Returns  {"started" | "exists", now, µs, its fields and values} | {"full", number that run} | {"no host"}
-- Cost  O(r): r sandboxes that run
-- Idempotent  by id
-- include: _clock.lua
-- include: _sandbox.lua
local id, spec, key, hash, cap, policy, host_span, source, host = unpack(ARGV)
if redis.call('EXISTS', root .. ':box:' .. id) == 1 then return {'exists', now, redis.call('HGETALL', root .. ':box:' .. id)} end
if redis.call('ZCOUNT', root .. ':hosts', now - host_span, '+inf') == 0 then return {'no host'} end
if host ~= '' and (tonumber(redis.call('ZSCORE', root .. ':hosts', host)) or 0) < now - host_span then return {'no host'} end
local room, number = make_room(tonumber(cap), policy)
if not room then return {'full', number} end
redis.call('HSET', root .. ':box:' .. id, 'id', id, 'spec_id', spec, 'session_api_key', key, 'key_hash', hash,
  'created_at', now, 'starting_at', now, 'active_at', now, 'wanted', 'running', 'host', host, 'source', source, 'handle', '',
  'agent_url', '', 'detail', '')
redis.call('ZADD', root .. ':created', now, id)
if host == '' then
  redis.call('ZADD', root .. ':unclaimed', now, id)
else
  redis.call('SADD', root .. ':host:' .. host, id)
end
redis.call('HSET', root .. ':keys', hash, id)
set_status(id, 'STARTING')
signal(id)
return {'started', now, redis.call('HGETALL', root .. ':box:' .. id)}
