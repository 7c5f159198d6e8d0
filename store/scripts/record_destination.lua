-- record_destination: count a connection or a refusal of a sandbox by name and port.
-- The counts end with the sandbox.
-- KEYS  root of the sandboxes
-- ARGV  sandbox:text  name:text  port:digits  outcome:text "allowed" or "refused"  sent:digits bytes
--       received:digits bytes  most:int names of a sandbox; further ones are counted together
-- Returns  flag: whether the sandbox exists
-- Cost  O(1)
-- Idempotent  a repeat counts twice
-- Kept  not proven: it only counts
-- include: _clock.lua
if redis.call('EXISTS', root .. ':box:' .. sandbox) == 0 then return 0 end
local key, at = root .. ':reached:' .. sandbox, name .. ':' .. port
local stored = redis.call('HGET', key, at)
if not stored and redis.call('HLEN', key) >= most then
  at = 'others'
  stored = redis.call('HGET', key, at)
end
local seen = stored and cjson.decode(stored) or
  {allowed = '0', refused = '0', sent = '0', received = '0', first_at = now}
local function add(member, number) seen[member] = string.format('%.0f', seen[member] + number) end
add(outcome, 1)
add('sent', sent)
add('received', received)
seen.last_at = now
redis.call('HSET', key, at, cjson.encode(seen))
redis.call('HINCRBY', root .. ':destinations', outcome, 1)
redis.call('HINCRBY', root .. ':destinations', 'sent', sent)
redis.call('HINCRBY', root .. ':destinations', 'received', received)
return 1
