-- claim_sandbox: give a host the sandbox that has waited longest for one, within the maximum of running sandboxes.
-- KEYS  root of the sandboxes
-- ARGV  host:text  most:int maximum of running sandboxes
-- Returns  text: its id | missing: there is none, or no room
-- Cost  O(log s): s sandboxes
-- Idempotent  no: a repeat claims another one, which the host then also holds and starts
-- include: _sandbox.lua
local id = redis.call('ZRANGE', root .. ':unclaimed', 0, 0)[1]
if not id then return false end
local occupied = redis.call('ZCARD', root .. ':created:RUNNING') + redis.call('ZCARD', root .. ':created:STARTING')
if occupied - redis.call('ZCARD', root .. ':unclaimed') >= most then return false end
redis.call('ZREM', root .. ':unclaimed', id)
if not field(id, 'status') then return false end
redis.call('HSET', root .. ':box:' .. id, 'host', host)
note_change(id)
redis.call('SADD', root .. ':host:' .. host, id)
return id
