-- Let go of a session that is due; whether it was. One that was written to since stays, and is due later.
local name = string.match(KEYS[1], ':session:(.+)$')
local head = redis.call('ZRANGE', KEYS[1], '0', '0')[1]
local expires = head and string.match(head, '^%d+')
if head and tonumber(expires) > tonumber(ARGV[1]) then
    redis.call('ZADD', KEYS[4], 'XX', expires, name)
    return 0
end
redis.call('DEL', KEYS[1])
redis.call('ZREM', KEYS[2], name)
redis.call('ZREM', KEYS[3], name)
return redis.call('ZREM', KEYS[4], name)
