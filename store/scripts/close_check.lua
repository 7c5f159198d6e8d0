-- close_check: end a comparison: the conversation is due again later, or not until something happens in it. One that has
-- become due earlier since the claim stays so.
-- KEYS  1 root of the sandboxes
-- ARGV  1 entry   2 end of its lease, µs   3 ms until it is due again ("" it is forgotten)
-- Returns  1 | 0: it has become due meanwhile, or another supervisor has it
-- Cost  O(log c): c conversations that are or will be due
-- Idempotent  by the end of the lease: a repeat finds another one
-- Kept  not proven: a lease ends by itself, and what it is of is claimed again
-- include: _clock.lua
local entry, lease_end, again = unpack(ARGV)
local due = redis.call('ZSCORE', root .. ':checks', entry)
if not due or tonumber(due) ~= tonumber(lease_end) then return 0 end
if again == '' then return redis.call('ZREM', root .. ':checks', entry) end
redis.call('ZADD', root .. ':checks', string.format('%.0f', now + again * 1000), entry)
return 1
