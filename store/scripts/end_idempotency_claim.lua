-- end_idempotency_claim: end an attempt: its response is stored, or the record may be claimed again, or the key is
-- free.
-- KEYS  root of the client's records
-- ARGV  key:text its digest  token:text of the attempt  span:int µs for which a record is kept
--       fields:map* of the record; none: the key is free
-- Returns  "ended" | "late": another attempt has claimed the record, or it has expired
-- Cost  O(log r): r records of the client
-- Idempotent  by token: a repeat finds the record without it, and is late
-- Kept  not proven: the work of a lost lease is claimed again
-- Full  goes on: its request has had its effect
-- include: _idempotency.lua
if redis.call('HGET', root .. ':key:' .. key, 'token') ~= token then return 'late' end
if #fields == 0 then
  redis.call('UNLINK', root .. ':key:' .. key)
  redis.call('ZREM', root .. ':live', key)
  return 'ended'
end
redis.call('HDEL', root .. ':key:' .. key, 'token')
redis.call('HSET', root .. ':key:' .. key, unpack(fields))
keep(key, span)
return 'ended'
