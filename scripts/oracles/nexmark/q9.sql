-- Each auction with its winning bid. Of bids of one price and one time it is not said which wins.
SELECT a.*, w.price, w.date_time, true FROM auctions AS a JOIN winning AS w ON w.auction = a.id;
-- What the job wrote.
SELECT unnest(auction), bid.price, bid.date_time, EXISTS (FROM bids WHERE bids = results.bid)
FROM read_json('{results}', format = 'newline_delimited', columns = {auction: 'STRUCT(id BIGINT, item_name VARCHAR, description VARCHAR, initial_bid BIGINT, reserve BIGINT, date_time BIGINT, expires BIGINT, seller BIGINT, category BIGINT, extra VARCHAR)', bid: 'STRUCT(auction BIGINT, bidder BIGINT, price BIGINT, channel VARCHAR, url VARCHAR, date_time BIGINT, extra VARCHAR)'}) AS results;
