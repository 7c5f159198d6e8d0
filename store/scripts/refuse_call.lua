-- refuse_call: count a call of a model that a budget refuses; of each sandbox and budget the first of a day is audited.
-- KEYS  1 root of the sandboxes
-- ARGV  1 sandbox id   2 its key ("" nobody's)   3 setting of the budget   4 name of the model's host   5 its port
--       6 why, canonical JSON   7 now, UTC text with Z   8 ms for which the audit of a day stays
--       9 the sandbox as an actor, canonical JSON   10 seconds for which a day is kept
-- Returns  1: it is audited | 0
-- Cost  O(1)
-- Idempotent  a repeat counts twice, and is not audited again
-- Log  none
-- Kept  not proven: nothing rests on its count
-- include: _clock.lua
-- include: _spending.lua
-- include: _sha256.lua
-- include: _destinations.lua
local sandbox, owner, setting, name, port, why, time, kept, actor, days = unpack(ARGV)
redis.call('HINCRBY', root .. ':spent_on:' .. today, 'refused', 1)
redis.call('HINCRBY', root .. ':spent_on:' .. today, 'refused ' .. owner, 1)
redis.call('EXPIRE', root .. ':spent_on:' .. today, days)
redis.call('HINCRBY', root .. ':models', 'refused', 1)
if redis.call('EXISTS', root .. ':box:' .. sandbox) == 0 then return 0 end
redis.call('HINCRBY', root .. ':spent:' .. sandbox, 'refused', 1)
local tally = ':tally:' .. sandbox .. ':' .. string.sub(time, 1, 10)
if redis.call('HSETNX', root .. tally, setting, '1') == 0 then return 0 end
redis.call('EXPIRE', root .. tally, 86400)
audit({time = time, kept = kept}, 'refused', actor, {name = name, port = port, sandbox = sandbox, reason = why})
return 1
