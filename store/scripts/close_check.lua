-- close_check: end a comparison: the conversation is due again later, or not until something happens in it. One that has
-- become due earlier since the claim stays so.
-- KEYS  root of the sandboxes
-- ARGV  entry:words  lease_end:micros  again:int? ms until it is due again; None: it is forgotten
-- Returns  flag: false where it has become due meanwhile, or another supervisor has it
-- Cost  O(log c): c conversations that are or will be due
-- Idempotent  by the end of the lease: a repeat finds another one
-- Kept  not proven: a lease ends by itself, and what it is of is claimed again
-- include: _clock.lua
local due = redis.call('ZSCORE', root .. ':checks', entry)
if not due or tonumber(due) ~= tonumber(lease_end) then return 0 end
if not again then return redis.call('ZREM', root .. ':checks', entry) end
redis.call('ZADD', root .. ':checks', string.format('%.0f', now + again * 1000), entry)
return 1
