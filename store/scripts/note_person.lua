-- note_person: note that a person has come who has a right, so that what they open can be ended.
-- KEYS  root of the access keys
-- ARGV  id:text  person:json {name, groups}  version:text of the grants by which they have it  most:int people
-- Returns  flag: whether the grants are still those
-- Cost  O(1); where there is no room O(p): p people
-- Idempotent  by id
if (redis.call('GET', root .. ':grants_version') or '') ~= version then return 0 end
if redis.call('HEXISTS', root .. ':people', id) == 0 and redis.call('HLEN', root .. ':people') >= most then
  redis.call('DEL', root .. ':people') -- what they have open ends, and each is noted again by the next request
end
redis.call('HSET', root .. ':people', id, person)
return 1
