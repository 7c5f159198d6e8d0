-- claim_idempotency_key: claim the record of an Idempotency-Key for an attempt at its request, or read its response.
-- The first claim of a key creates its record. A claim after the lease has ended, because the worker was killed, is
-- later.
-- KEYS  root of the client's records
-- ARGV  key:text its digest  fingerprint:text of the request  token:text one per attempt
--       seed:text of the ids of a new record  lease:int µs  span:int µs for which a record is kept
--       most:int records of the client
-- Returns  "claimed"(seed:text is_later:flag): whether an earlier attempt may have reached an agent | "busy"
--          | "reused": by another request | "full"(number:int): of records | "finished"(record:hash)
-- Cost  O(log r + e): r records of the client, e expired ones
-- Idempotent  by token: a repeat of the claim that got the record returns the same
-- Kept  not proven: the work of a lost lease is claimed again
-- include: _idempotency.lua
local known, claimant, until_, first_seed, is_later, status = unpack(redis.call('HMGET', root .. ':key:' .. key,
  'fingerprint', 'token', 'lease', 'seed', 'later', 'status'))
if not known then
  redis.call('ZREMRANGEBYSCORE', root .. ':live', '-inf', now)
  local number = redis.call('ZCARD', root .. ':live')
  if number >= most then return {'full', number} end
  redis.call('HSET', root .. ':key:' .. key, 'fingerprint', fingerprint, 'token', token, 'lease', after(lease), 'seed', seed)
  keep(key, span)
  return {'claimed', seed, ''}
end
if known ~= fingerprint then return 'reused' end
if status then return {'finished', redis.call('HGETALL', root .. ':key:' .. key)} end
if claimant ~= token then
  local left = until_ - now -- more than a lease: the clock stepped back
  if left > 0 and left <= lease then return 'busy' end
  is_later = until_ ~= '0' and '1' or is_later
  redis.call('HSET', root .. ':key:' .. key, 'token', token, 'lease', after(lease), 'later', is_later or '')
end
return {'claimed', first_seed, is_later or ''}
