-- claim_sweep: claim the next part of the sweep, which compares the index of approvals with the conversations, unless
-- the last part was claimed a moment ago. Old entries are removed from the index of the audit.
-- KEYS  root of the approvals
-- ARGV  span:int µs between two parts  most:int conversations of the index
--       kept:int µs for which an audit entry is indexed
-- Returns  (sweep:hash conversations:text*): of the index, those that were compared longest ago
--          | missing: it is too early
-- Cost  O((m + e) log c): c conversations in the index, m claimed ones, e removed audit entries, at most 1,000
-- Idempotent  a repeat claims nothing: what was claimed and not compared is compared in the next rotation
-- Kept  not proven: the work of a lost lease is claimed again
-- include: _clock.lua
local last = redis.call('HGET', root .. ':sweep', 'at')
local passed = last and now - last -- negative: the clock stepped back
if passed and passed >= 0 and passed < span then return false end
redis.call('HSET', root .. ':sweep', 'at', now)
local old = redis.call('ZRANGEBYSCORE', root .. ':audit', '-inf', now - kept, 'LIMIT', 0, 1000)
if #old > 0 then redis.call('ZREM', root .. ':audit', unpack(old)) end
local reply = {redis.call('HGETALL', root .. ':sweep')}
for _, conversation in ipairs(redis.call('ZRANGE', root .. ':checks', 0, most - 1)) do
  redis.call('ZADD', root .. ':checks', now, conversation)
  reply[#reply + 1] = conversation
end
return reply
