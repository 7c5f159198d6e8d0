-- claim_warm_sandbox: bind the warm sandbox of a spec that has waited longest to a start task, as far as one runs on a living
-- host. No supervisor is woken: the pool is filled at its next poll, after the start.
-- KEYS  1 root of the sandboxes
-- ARGV  1 spec id   2 version of the spec   3 id of the start task   4 a heartbeat that is older, µs, is lost
--       5 "1": it gives way to others while it is idle   6 id of the key that starts the conversation ("" nobody)
-- Returns  its id | false: there is none, or the start task has ended
-- Cost  O(w + log s): w warm sandboxes of the spec, s sandboxes
-- Idempotent  by start task, for an hour: a repeat finds the same sandbox, unless it is being deleted
-- include: _sandbox.lua
local spec, version, start, host_span, gives_way, owner = unpack(ARGV)
if redis.call('EXISTS', root .. ':ended:' .. start) == 1 then return false end
local key = root .. ':claimed:' .. start
local had = redis.call('GET', key)
if had and field(had, 'wanted') == 'running' then return had end
for _, id in ipairs(redis.call('ZRANGE', root .. ':warm:' .. spec, 0, -1)) do
  local status, wanted, warm, host = unpack(redis.call('HMGET', root .. ':box:' .. id, 'status', 'wanted', 'warm', 'host'))
  local beat = redis.call('ZSCORE', root .. ':hosts', host)
  if status == 'RUNNING' and wanted == 'running' and warm == version and beat and now - beat <= tonumber(host_span) then
    bind(id)
    redis.call('HSET', root .. ':box:' .. id, 'gives_way', gives_way)
    own(id, owner)
    redis.call('SET', key, id, 'EX', 3600)
    return id
  end
end
return false
