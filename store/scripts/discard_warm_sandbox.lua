-- discard_warm_sandbox: end a warm sandbox, unless it is bound by now.
-- After a failure its pool waits for a backoff: 1, 2, 4, … at most 60 s. Failures within the backoff count once, and
-- expire ten minutes after the last one.
-- KEYS  root of the sandboxes
-- ARGV  id:text  failed:flag its processes failed; otherwise it is not needed
-- Returns  flag: its supervisor deletes it; false if it is bound, or gone
-- Cost  O(log s): s sandboxes
-- Idempotent  a repeat finds it discarded
-- include: _sandbox.lua
local FIRST, LONGEST, SPAN = 1000000, 60000000, 600000000
if not is_warm(id) then return 0 end
local key = root .. ':pool:' .. field(id, 'spec_id')
discard(id)
if not failed or redis.call('EXISTS', key) == 0 then return 1 end
local failures, after = unpack(redis.call('HMGET', key, 'failures', 'after'))
failures, after = tonumber(failures or 0), tonumber(after or 0)
if tonumber(now) < after and after - now <= LONGEST then return 1 end -- beyond that the clock stepped back
if now - after > SPAN then failures = 0 end
local backoff = math.min(FIRST * 2 ^ math.min(failures, 10), LONGEST)
redis.call('HSET', key, 'failures', failures + 1, 'after', string.format('%.0f', now + backoff))
return 1
