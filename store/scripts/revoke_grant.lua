-- revoke_grant: delete a grant.
-- The connections of its people end, and their next request is a new one.
-- KEYS  root of the access keys
-- ARGV  id:text  request:text its id
-- Returns  flag: whether the grant existed
-- Cost  O(p): p recorded people
-- Idempotent  by id of the request, for a day
-- include: _grants.lua
if redis.call('GET', root .. ':grant_revoked:' .. id) == request then return 1 end
local stored = redis.call('HGET', root .. ':grants', id)
if not stored then return 0 end
local grant = cjson.decode(stored)
redis.call('HDEL', root .. ':grants', id)
redis.call('SET', root .. ':grant_revoked:' .. id, request, 'PX', 86400000)
note_grants()
local people = redis.call('HGETALL', root .. ':people')
for i = 1, #people, 2 do
  local person = cjson.decode(people[i + 1])
  local is_meant = person.name == grant.person
  for _, group in ipairs(person.groups) do is_meant = is_meant or group == grant.group end
  if is_meant then redis.call('HDEL', root .. ':people', people[i]) end
end
return 1
