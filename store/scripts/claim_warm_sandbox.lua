-- claim_warm_sandbox: bind the warm sandbox of a spec that has waited longest, and runs on a live host, to a start
-- task. No supervisor is woken: the pool is filled at its next poll, after the start.
-- KEYS  root of the sandboxes
-- ARGV  spec:text its id  version:text of the spec  start:text id of the start task
--       host_span:int age in µs at which a heartbeat is lost
--       gives_way:flag whether it may be paused for others while it is idle
--       owner:text id of the key that starts the conversation, "" none
-- Returns  text: its id | missing: there is none, or the start task has ended
-- Cost  O(w + log s): w warm sandboxes of the spec, s sandboxes
-- Idempotent  by start task, for an hour: a repeat returns the same sandbox, unless it is being deleted
-- include: _sandbox.lua
if redis.call('EXISTS', root .. ':ended:' .. start) == 1 then return false end
local key = root .. ':claimed:' .. start
local had = redis.call('GET', key)
if had and field(had, 'wanted') == 'running' then return had end
for _, id in ipairs(redis.call('ZRANGE', root .. ':warm:' .. spec, 0, -1)) do
  local status, wanted, warm, host = unpack(redis.call('HMGET', root .. ':box:' .. id, 'status', 'wanted', 'warm', 'host'))
  local beat = redis.call('ZSCORE', root .. ':hosts', host)
  if status == 'RUNNING' and wanted == 'running' and warm == version and beat and now - beat <= host_span then
    bind(id)
    redis.call('HSET', root .. ':box:' .. id, 'gives_way', gives_way and '1' or '')
    own(id, owner)
    redis.call('SET', key, id, 'EX', 3600)
    return id
  end
end
return false
