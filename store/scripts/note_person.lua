-- note_person: record that a person with a right has used this server, so that their connections can be ended.
-- KEYS  root of the access keys
-- ARGV  id:text  person:json {name, groups}  version:text of the grants that give the right  most:int people
-- Returns  flag: whether this is still the version of the grants
-- Cost  O(1), without room O(p): p people
-- Idempotent  by id
if (redis.call('GET', root .. ':grants_version') or '') ~= version then return 0 end
if redis.call('HEXISTS', root .. ':people', id) == 0 and redis.call('HLEN', root .. ':people') >= most then
  redis.call('DEL', root .. ':people') -- their connections end, and each person is recorded again by the next request
end
redis.call('HSET', root .. ':people', id, person)
return 1
