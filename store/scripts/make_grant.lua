-- make_grant: store a grant of a person or of a group, once per id.
-- KEYS  root of the access keys
-- ARGV  id:text  grant:json an object, without `created_at`  most:int grants
-- Returns  "made"(grant:json) | "full" | "revoked": the one with that id
-- Cost  O(1)
-- Idempotent  by id, also for a day after the grant was revoked
-- Brings  bytes
-- include: _grants.lua
local known = redis.call('HGET', root .. ':grants', id)
if known then return {'made', known} end
if redis.call('EXISTS', root .. ':grant_revoked:' .. id) == 1 then return 'revoked' end
if redis.call('HLEN', root .. ':grants') >= most then return 'full' end
local made = '{"created_at":' .. now .. ',' .. string.sub(grant, 2)
redis.call('HSET', root .. ':grants', id, made)
note_grants()
return {'made', made}
