-- close_check: end a comparison: the conversation is due again later, or when something happens in it.
-- If it has become due earlier since the claim, it stays so.
-- KEYS  root of the sandboxes
-- ARGV  entry:words  lease_end:micros  again:int? ms until it is due again; None: remove it
-- Returns  flag: false if it has become due meanwhile, or another supervisor has it
-- Cost  O(log c): c conversations in the due index
-- Idempotent  by the end of the lease: a repeat finds another one
-- Kept  not proven: the work of a lost lease is claimed again
-- include: _clock.lua
local due = redis.call('ZSCORE', root .. ':checks', entry)
if not due or tonumber(due) ~= tonumber(lease_end) then return 0 end
if not again then return redis.call('ZREM', root .. ':checks', entry) end
redis.call('ZADD', root .. ':checks', string.format('%.0f', now + again * 1000), entry)
return 1
